"""The far side. Started by name, imported by nobody on the user's side; imports only the ground floor."""
