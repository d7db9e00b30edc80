"""An engine behind the interface of chat completions, so that programs written for it need no other change.

    client = AsyncOpenAI(await Engine.load("model.gguf"))
    answer = await client.chat.completions.create(model="default", messages=[{"role": "user", "content": "Hello!"}])
    print(answer.choices[0].message.content)

Nothing goes over a network: the answers' and errors' shapes are the API's, the engine is this process's. `docs/python-api.md`
says which parameters there are; any other is refused by name.
"""

from pyruntime.openai.client import AsyncOpenAI, AsyncStream
from pyruntime.openai.errors import (
    APIConnectionError,
    APIError,
    APIStatusError,
    BadRequestError,
    InternalServerError,
    OpenAIError,
    RateLimitError,
)

__all__ = [
    "APIConnectionError",
    "APIError",
    "APIStatusError",
    "AsyncOpenAI",
    "AsyncStream",
    "BadRequestError",
    "InternalServerError",
    "OpenAIError",
    "RateLimitError",
]
