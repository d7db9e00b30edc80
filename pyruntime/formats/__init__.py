"""Files: where their bytes come from, and what containers say about them, checked."""
