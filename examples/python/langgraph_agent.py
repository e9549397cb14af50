"""An agent of LangGraph with a checkpointer: reads a question from each line of its input.

python langgraph_agent.py THREAD [POLICY], for example: python langgraph_agent.py ticket-4711 '{"model": "gpt-4o"}'
"""

import json
import os
import sys
from functools import partial

from langchain_core.messages import RemoveMessage, messages_from_dict, messages_to_dict
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import StructuredTool, tool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.prebuilt import ToolNode, tools_condition

from palimpsest import Failure, Palimpsest
from recovery_tools import call_recovery_tool, recovery_tools

palimpsest = Palimpsest()


@tool
def order_status(order: int) -> str:
    """Tells the status of an order."""
    return f"Order {order} was shipped. {'It left the warehouse. ' * 20}"


def recovery_tool(definition):
    def call(config: RunnableConfig, **arguments):
        return call_recovery_tool(palimpsest, config["configurable"]["thread_id"], name, arguments)

    name, description, schema = definition["function"].values()
    return StructuredTool(name=name, description=description, args_schema=schema, func=call)


tools = [order_status, *map(recovery_tool, recovery_tools)]
reserved = 4_096
room = {"reservedOutputTokens": reserved, "overhead": {"tools": [convert_to_openai_tool(tool) for tool in tools]}}
model = ChatOpenAI(model="gpt-4o", max_tokens=reserved).bind_tools(tools)


def usage_of(messages):
    """The tokens that the provider reported with an answer, as long as nothing but results of its calls follows it."""
    answer = next((message for message in reversed(messages) if message.type != "tool"), None)
    usage = getattr(answer, "usage_metadata", None)
    return usage and {"inputTokens": usage["input_tokens"], "outputTokens": usage["output_tokens"]}


def fit(state, config, policy):
    """Puts the context in place of the state's messages, which then stay as small as the context."""
    session = config["configurable"]["thread_id"]
    fields = {"format": "langchain", "policy": policy, "onEdit": "fork"}
    if usage := usage_of(state["messages"]):
        fields["usage"] = usage
    context = palimpsest.sync(session, messages_to_dict(state["messages"]), **fields)
    return {"messages": [RemoveMessage(id=REMOVE_ALL_MESSAGES), *messages_from_dict(context)]}


def store(state, config, policy):
    """Stores the last answer."""
    try:
        return fit(state, config, policy)
    except (Failure, OSError) as failure:
        # The caller gets the answer all the same: the next `sync` stores it.
        print(failure, file=sys.stderr)


def agent(policy, checkpointer):
    def ask(state):
        return {"messages": [model.invoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("fit", partial(fit, policy=policy))
    graph.add_node("ask", ask)
    graph.add_node("tools", ToolNode(tools))
    graph.add_node("store", partial(store, policy=policy))
    graph.add_edge(START, "fit")
    graph.add_edge("fit", "ask")
    graph.add_conditional_edges("ask", tools_condition, {"tools": "tools", "__end__": "store"})
    graph.add_edge("tools", "fit")
    return graph.compile(checkpointer=checkpointer)


def run(graph, given, config):
    """The last answer as the model wrote it: in the context, and so in the state, it may be shortened."""
    # An open turn may have its answer already. With a checkpoint's id, the state is the one before the node that was interrupted.
    begun = [] if given else graph.get_state(graph.get_state(config).config).values.get("messages", [])
    answer = begun[-1] if begun else None
    for update in graph.stream(given, config, stream_mode="updates"):
        if "ask" in update:
            answer = update["ask"]["messages"][-1]
    return answer


def prune(checkpointer, thread):
    """Deletes all checkpoints but the newest: each one has the whole state. Leave it out to go back in time."""
    with checkpointer.cursor() as cursor:
        newest = "(select max(checkpoint_id) from checkpoints where thread_id = ?1)"
        for table in ("writes", "checkpoints"):
            cursor.execute(f"delete from {table} where thread_id = ?1 and checkpoint_id < {newest}", (thread,))


def main(thread, policy='{"model": "gpt-4o"}'):
    policy = {**room, **json.loads(policy)}
    config = {"configurable": {"thread_id": thread}}
    with SqliteSaver.from_conn_string(os.environ.get("CHECKPOINTS", "checkpoints.sqlite")) as checkpointer:
        graph = agent(policy, checkpointer)

        def answer(given):
            written = run(graph, given, config)
            prune(checkpointer, thread)
            print(written.text, flush=True)

        # The last process ended in the middle of a turn. `next` leaves out a node that has run, but has no checkpoint yet.
        if graph.get_state(config).tasks:
            answer(None)
        for line in sys.stdin:
            # A thread without a checkpoint begins with what the session has.
            begun = graph.get_state(config).values
            held = [] if begun else messages_from_dict(palimpsest.held(thread))
            answer({"messages": [*held, ("user", line.strip())]})


if __name__ == "__main__":
    main(*sys.argv[1:])
