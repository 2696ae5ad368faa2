"""Every interleaving: the simulation's nodes driven through all orders of steps, breadth first."""
