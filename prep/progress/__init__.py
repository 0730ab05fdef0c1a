"""What a command reports: status lines, warnings, progress; and threads that report, with their limit."""
