"""What a Parquet file says of itself, and whether that is true: footers and page headers, read before rows are decoded.

    file ─▶ footer ─▶ pages ─▶ sizes and counts that bound memory, or what contradicts what

A footer is a promise of a publisher: nothing here is believed that rows depend on (contract, section 4).
"""
