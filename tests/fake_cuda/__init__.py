"""A CUDA device for CPU builds of torch: `pytest -p fake_cuda.plugin`, and there are "cuda:0" and "cuda:1".

Tensors on them lie in host memory and the CPU's kernels compute on them (device.cpp, operators.cpp). Results are the
CPU's bit for bit; operands of different devices raise as on a GPU; launches, waits and copies are counted, each with
the line that asked for it. It cannot show speed, races of streams, CUDA's own kernels and their rounding, what memory
holds, Triton, NCCL or CUDA graphs.
"""
