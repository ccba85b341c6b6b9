"""Keys of a table's rows: how they compare, which rows of which data file have them, and the index that remembers it.

    keys of changes ─▶ wanted_keys ─▶ bounds of files ─▶ key_index, or look_up in the file ─▶ row numbers

A key compares by the contract (section 3). The index is a cache: without it, an apply reads key columns of data files.
"""
