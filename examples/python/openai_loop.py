"""An agent with the OpenAI SDK: reads a question from each line of its input.

python openai_loop.py SESSION [POLICY], for example: python openai_loop.py ticket-4711 '{"model": "gpt-4o"}'
"""

import json
import sys

from openai import OpenAI

from palimpsest import Failure, Palimpsest
from recovery_tools import call_recovery_tool, names, recovery_tools

openai = OpenAI()
palimpsest = Palimpsest()
model = "gpt-4o"
reserved = 4_096


def order_status(order):
    return f"Order {order} was shipped. {'It left the warehouse. ' * 20}"


tools = [
    *recovery_tools,
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


def run(session, name, arguments):
    if name in names:
        return call_recovery_tool(palimpsest, session, name, arguments)
    return order_status(**json.loads(arguments))


def answer(session, held, question, policy):
    """Returns the answer, and the messages to hold until the next question. Without a question it goes on with `held`."""
    asked = [] if question is None else [{"role": "user", "content": question}]
    messages = palimpsest.sync(session, [*held, *asked], policy=policy)
    while True:
        completion = openai.chat.completions.create(model=model, messages=messages, tools=tools, max_completion_tokens=reserved)
        said = completion.choices[0].message
        results = [
            {
                "role": "tool",
                "tool_call_id": call.id,
                "content": run(session, call.function.name, call.function.arguments),
            }
            for call in said.tool_calls or []
        ]
        new = [said.model_dump(exclude_none=True), *results]
        messages = [*messages, *new]
        try:
            messages = palimpsest.sync(session, messages, usage=completion.usage.model_dump())
        except (Failure, OSError) as failure:
            if results:
                raise
            # The caller gets the answer all the same: the next `sync` stores it.
            print(failure, file=sys.stderr)
        if not results:
            return said.content, messages


def main(session, policy='{"model": "gpt-4o"}'):
    policy = {"reservedOutputTokens": reserved, "overhead": {"tools": tools}, **json.loads(policy)}
    held = palimpsest.held(session)
    if held and held[-1]["role"] != "assistant":
        # The process before ended in the middle of a turn.
        text, held = answer(session, held, None, policy)
        print(text, flush=True)
    for line in sys.stdin:
        text, held = answer(session, held, line.strip(), policy)
        print(text, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
