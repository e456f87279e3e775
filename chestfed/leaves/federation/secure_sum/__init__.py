"""A sum of hospitals' updates that discloses only the sum to the server.

K. Bonawitz et al.: Practical secure aggregation for privacy-preserving machine learning. ACM CCS 2017, figure 4, the
protocol with signatures; the proof is theirs (theorems 6.2 to 6.5), what it comes to here is in `member`. It is run
anew for every round, with new keys, so nothing that is revealed in one round serves in another.

    member                                    server
    advertise()              -> keys          relays all keys
    share(keys)              -> ciphertexts   relays to each member those for it
    mask(values, ciphertexts) -> masked       says who answered: the survivors
    confirm(survivors)       -> signature     relays the signatures
    reveal(survivors, signatures) -> shares   recover_sum(...) -> the sum of the survivors' values

A member that stops answering after any step does not stop the round while `threshold` members are left.
"""
