"""An embeddings server: the paths of OpenAI and TEI over HTTP, a queue, and an engine in a supervised process.

A request passes through `app.Guard`, a function of `routes`, `service.Service.embed` and `engine.Engine.run` to the
engine's process (`worker`). The HTTP process needs no torch, and the engine's process loads nothing of HTTP.
"""
