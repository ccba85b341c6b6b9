"""The kernels: row work as Arrow functions on units. Read, fold, look up, write, compact."""
