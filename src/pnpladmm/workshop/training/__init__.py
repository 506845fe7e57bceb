"""Training of the networks: pictures in, weights with a card out, and tables that say how good they are."""
