"""Progress bars, status lines, and threads that report their progress."""
