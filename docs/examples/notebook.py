# %% [markdown]
# Which plan for GPT-2, how much memory, and what do more hosts gain? A test runs each cell. Jupyter (with jupytext),
# VS Code and Spyder open the file as a notebook; python3 runs it as a script.

# %%
import trainyard

plan = trainyard.plan("gpt2", "2x dgx-a100", top=3)
plan.show()

# %% [markdown]
# Why the other candidates lost. With pandas, `plan.frame()` is the same as a DataFrame.

# %%
for candidate in plan.candidates[:3]:
    print(candidate["name"], "-", candidate["reason"])

# %% [markdown]
# The cost of a straggler, and memory by purpose.

# %%
straggler = plan.simulate(straggler="3=2")
print(f"a step of {1e3 * plan.step_time_s:.0f} ms takes {1e3 * straggler.step_time_s:.0f} ms where device 3 is half as fast")
memory = trainyard.memory("gpt2", "2x dgx-a100", fix={"zero": 0})
for part, size in memory.stages[0].items():
    if part.endswith("_bytes"):
        print(f"{part:24} {size / 2**30:6.2f} GiB")

# %% [markdown]
# A table over the number of hosts.

# %%
table = trainyard.whatif("gpt2", "dgx-a100", vary={"hosts": [1, 2, 4]}, no_simulate=True)
for row in table.rows:
    print(row["values"], f"{row['samples_per_s']:.0f} samples/s")

# %% [markdown]
# A question without an answer suggests a change.

# %%
try:
    trainyard.plan("gpt3-175b", "1x p100-server", fix={"pp": 1})
except trainyard.NoPlanError as error:
    print(error)

# %% [markdown]
# The report, to share.

# %%
plan.report("gpt2.html")
