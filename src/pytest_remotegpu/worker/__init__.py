"""The far side: started by name, and imported by nobody on the user's side.

Must not import more of this package than its ground floor.
"""
