"""Every setting: its value, where the value comes from, and what is wrong with it.

flag > environment > `mirroring.json` > default ─▶ settings: resolve ─▶ Settings
                                                └▶ origin, spelling: what a person wants to know of them
"""
