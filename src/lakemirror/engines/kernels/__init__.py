"""Row work as pure Arrow functions over units: read, fold, look up, write, compact."""
