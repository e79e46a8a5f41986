"""What Spark keeps of the buckets in its checkpoint: how it lies there, and how a run goes on with it."""
