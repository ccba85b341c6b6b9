"""The service: every mirrored database under one root folder, behind one HTTPS address.

    listener ─▶ plane by path ─▶ authority | REST | storage | operating ─▶ registry ─▶ engine host

Needs the extra `service`; nothing but the command line imports it.
"""
