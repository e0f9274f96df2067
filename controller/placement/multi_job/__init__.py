"""Placement of several jobs: `multi_tree` divides each job's chunks among several trees by one linear program, and
`joint` decides which running jobs should move, and where to.
"""
