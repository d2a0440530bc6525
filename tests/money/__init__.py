"""What a run costs, and the limits that end it: whole sessions against a backend in memory."""
