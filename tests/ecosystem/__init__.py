"""Other projects' pytest plugins: a small suite of each, run plainly and shipped, and compared.

What the plugins write is compared as well. Needs the plugins: ``tox run -e ecosystem``.
"""
