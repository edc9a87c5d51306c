"""An embeddings server: OpenAI's and TEI's paths over HTTP, a queue, and an engine in a process that is watched.

The way of a request: `app.Guard` → `routes` → `service.Service.embed` → `engine.Engine.run` → the engine's process
(`worker`). The HTTP process needs no torch, and nothing of HTTP is loaded in the engine's process.
"""
