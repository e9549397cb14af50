"""An agent of LangGraph with a checkpointer: reads a question from each line of its input.

python langgraph_agent.py THREAD [POLICY], for example: python langgraph_agent.py ticket-4711 '{"model": "gpt-4o"}'
"""

import json
import os
import sys

from langchain_core.messages import RemoveMessage, messages_from_dict, messages_to_dict
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.prebuilt import ToolNode, tools_condition

from palimpsest import Palimpsest

palimpsest = Palimpsest()


@tool
def order_status(order: int) -> str:
    """Tells the status of an order."""
    return f"Order {order} was shipped. {'It left the warehouse. ' * 20}"


tools = [order_status]
model = ChatOpenAI(model="gpt-4o").bind_tools(tools)


def agent(policy, checkpointer):
    def fit(state, config):
        """Puts the context in place of the state's messages, which then stay as small as the context."""
        session = config["configurable"]["thread_id"]
        messages = messages_to_dict(state["messages"])
        context = palimpsest.sync(session, messages, format="langchain", policy=policy, onEdit="fork")
        return {"messages": [RemoveMessage(id=REMOVE_ALL_MESSAGES), *messages_from_dict(context)]}

    def ask(state):
        return {"messages": [model.invoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("fit", fit)
    graph.add_node("ask", ask)
    graph.add_node("tools", ToolNode(tools))
    # Stores the last answer.
    graph.add_node("store", fit)
    graph.add_edge(START, "fit")
    graph.add_edge("fit", "ask")
    graph.add_conditional_edges("ask", tools_condition, {"tools": "tools", "__end__": "store"})
    graph.add_edge("tools", "fit")
    return graph.compile(checkpointer=checkpointer)


def main(thread, policy='{"model": "gpt-4o"}'):
    # The agent has no tools that read evicted messages, so its context does not name them.
    policy = {"recovery": "none", **json.loads(policy)}
    config = {"configurable": {"thread_id": thread}}
    with SqliteSaver.from_conn_string(os.environ.get("CHECKPOINTS", "checkpoints.sqlite")) as checkpointer:
        graph = agent(policy, checkpointer)
        for line in sys.stdin:
            state = graph.invoke({"messages": [("user", line.strip())]}, config)
            print(state["messages"][-1].text, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
