"""Who is in a ring, as its keeper sees it: where nodes and clients come, who is a member, nodes that have joined."""
