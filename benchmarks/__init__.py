"""How long lakemirror takes beside what one would write or install instead, measured in one run on one machine.

data ─▶ worker (one process per peer and round) ─▶ __main__: medians, ratios, is everybody's table the same? ─▶ report
"""
