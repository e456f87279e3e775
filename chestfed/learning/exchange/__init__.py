"""The exchange of a round: steps between the clients' local work and the server's own step, one file each."""
