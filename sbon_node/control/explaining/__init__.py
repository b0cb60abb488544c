"""Plans and placements explained: what runs where, why, what else there was, and what the choice hangs on."""
