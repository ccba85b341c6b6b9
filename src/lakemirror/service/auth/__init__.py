"""Who may do what: principals, tokens, keys.

principals ─▶ token endpoint ─▶ RS256 token ─▶ authenticator ─▶ caller
"""
