"""What is shown of nodes: the models of the API's answers, and how those of workers and of nodes add up."""
