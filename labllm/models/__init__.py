"""One Llama-family model into which the techniques of the other rooms are plugged.

`config` reads a Hugging Face config.json; `rope`, `layers` and `llama` are the model; `load` fills it from safetensors;
`generate`, `stream`, `writing` and `evaluate` use it; `heldout` is the text it is judged on; `pico` is the small model
that ships. `operations` and `packed` are the same model in fewer launches, with weights stacked by `packing`; `graphs`
starts a whole decode step as one.
"""
