"""A sum of hospitals' updates that discloses only the sum to the server. Experimental: not reviewed by others yet.

Every two members share a mask that one adds and the other subtracts (K. Bonawitz et al.: Practical secure aggregation
for privacy-preserving machine learning. ACM CCS 2017, section 4.0.1, with signed keys). There are no shares of secrets
and no second masks: a round needs every member to its end, so that the server never has sums of two lists of members,
whose difference would be one member's update.

    member                                server
    advertise()    -> keys                relays all keys
    accept(keys)
    mask(values)   -> masked              adds up: the masks cancel
"""
