"""Where keys and values of past tokens lie: the batch record `Step` and the caches it points into."""
