"""Report status lines, warnings and progress; run threads within their limit."""
