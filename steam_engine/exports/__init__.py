"""Takes the edited model away: one module a format, one transaction for all, and readers that share no code with it."""
