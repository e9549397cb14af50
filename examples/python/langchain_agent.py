"""An agent of LangChain's `create_agent` with asyncio: reads a question from each line of its input.

python langchain_agent.py THREAD [POLICY], for example: python langchain_agent.py ticket-4711 '{"model": "gpt-4o"}'
"""

import asyncio
import json
import os
import sys

from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import messages_from_dict
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.config import get_config

from langgraph_agent import fit, palimpsest, reserved, room, store, tools


class PalimpsestMiddleware(AgentMiddleware):
    def __init__(self, policy):
        super().__init__()
        self.policy = policy

    async def abefore_model(self, state, runtime):
        return await asyncio.to_thread(fit, state, get_config(), self.policy)

    async def aafter_agent(self, state, runtime):
        return await asyncio.to_thread(store, state, get_config(), self.policy)


async def run(graph, given, config):
    """The last answer as the model wrote it: in the context, and so in the state, it may be shortened."""
    answer = None
    if given is None:
        # An open turn may have its answer already. With a checkpoint's id, the state is the one before the node that was interrupted.
        newest = await graph.aget_state(config)
        answer = (await graph.aget_state(newest.config)).values["messages"][-1]
    async for update in graph.astream(given, config, stream_mode="updates"):
        if "model" in update:
            answer = update["model"]["messages"][-1]
    return answer


async def prune(checkpointer, thread):
    """Deletes all checkpoints but the newest: each one has the whole state. Leave it out to go back in time."""
    newest = "(select max(checkpoint_id) from checkpoints where thread_id = ?1)"
    async with checkpointer.lock:
        for table in ("writes", "checkpoints"):
            delete = f"delete from {table} where thread_id = ?1 and checkpoint_id < {newest}"
            await checkpointer.conn.execute(delete, (thread,))
        await checkpointer.conn.commit()


async def main(thread, policy='{"model": "gpt-4o"}'):
    middleware = [PalimpsestMiddleware({**room, **json.loads(policy)})]
    model = ChatOpenAI(model="gpt-4o", max_tokens=reserved)
    config = {"configurable": {"thread_id": thread}}
    path = os.environ.get("CHECKPOINTS", "checkpoints.sqlite")
    async with AsyncSqliteSaver.from_conn_string(path) as checkpointer:
        graph = create_agent(model, tools, middleware=middleware, checkpointer=checkpointer)

        async def answer(given):
            written = await run(graph, given, config)
            await prune(checkpointer, thread)
            print(written.text, flush=True)

        # The last process ended in the middle of a turn. `next` leaves out a node that has run, but has no checkpoint yet.
        if (await graph.aget_state(config)).tasks:
            await answer(None)
        for line in sys.stdin:
            # A thread without a checkpoint begins with what the session has.
            begun = (await graph.aget_state(config)).values
            held = [] if begun else messages_from_dict(await asyncio.to_thread(palimpsest.held, thread))
            await answer({"messages": [*held, ("user", line.strip())]})


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
