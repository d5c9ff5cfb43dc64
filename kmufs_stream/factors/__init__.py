"""A rank-k factor: computed, stored, recognised, asked."""
