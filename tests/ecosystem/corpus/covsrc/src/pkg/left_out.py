def never():
    return 1
