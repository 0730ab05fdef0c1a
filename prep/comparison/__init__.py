"""Compare two datasets: their examples by keys and contents, and the options of their builds."""
