"""An agent with the OpenAI SDK: reads a question from each line of its input.

python openai_loop.py SESSION [POLICY], for example: python openai_loop.py ticket-4711 '{"model": "gpt-4o"}'
"""

import json
import sys

from openai import OpenAI

from palimpsest import Palimpsest

openai = OpenAI()
palimpsest = Palimpsest()
model = "gpt-4o"


def order_status(order):
    return f"Order {order} was shipped. {'It left the warehouse. ' * 20}"


tools = [
    {
        "type": "function",
        "function": {
            "name": "order_status",
            "description": "Tells the status of an order.",
            "parameters": {
                "type": "object",
                "properties": {"order": {"type": "integer"}},
                "required": ["order"],
            },
        },
    }
]


def answer(session, held, question, policy):
    """Returns the answer, and the messages to hold until the next question."""
    messages = palimpsest.sync(session, [*held, {"role": "user", "content": question}], policy=policy)
    while True:
        completion = openai.chat.completions.create(model=model, messages=messages, tools=tools)
        said = completion.choices[0].message
        results = [
            {
                "role": "tool",
                "tool_call_id": call.id,
                "content": order_status(**json.loads(call.function.arguments)),
            }
            for call in said.tool_calls or []
        ]
        new = [said.model_dump(exclude_none=True), *results]
        messages = palimpsest.sync(session, [*messages, *new], usage=completion.usage.model_dump())
        if not results:
            return said.content, messages


def main(session, policy='{"model": "gpt-4o"}'):
    # The agent has no tools that read evicted messages, so its context does not name them.
    policy = {"recovery": "none", **json.loads(policy)}
    held = palimpsest.held(session)
    for line in sys.stdin:
        text, held = answer(session, held, line.strip(), policy)
        print(text, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
