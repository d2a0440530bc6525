"""The backend ``modal``: GPUs that are rented by the second."""
