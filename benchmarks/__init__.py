"""How long lakemirror takes beside what one would write or install instead, measured in one run on one machine.

scenarios × peers ─▶ runner (data once; a process per peer, scenario and round) ─▶ results/*.json
                                  report: medians, spread, ratios, is every table right? ─▶ terminal, docs/, charts
growth: one apply against rows, changes, tables, commits, columns ─▶ results/*.json ─▶ report
"""
