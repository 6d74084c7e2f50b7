// The CUDA C++ vocabulary as the host device understands it; force-included before the kernel text.
//
// A kernel's CUDA threads are fibers, its block runs on one OS thread, and everything a thread can wait for
// (barriers, shuffles, votes, warp matrix instructions) is a call into the runtime in ../src.
#pragma once
#define BARACUDA_HOST 1
#include <stdio.h>

#include "baracuda_host/qualifiers.h"
#include "baracuda_host/vector_types.h"
#include "baracuda_host/interface.h"
#include "baracuda_host/interface_sm90.h"
#include "baracuda_host/threads.h"
#include "baracuda_host/warp.h"
#include "baracuda_host/bits.h"
#include "baracuda_host/arithmetic.h"
#include "baracuda_host/conversions.h"
#include "baracuda_host/memory.h"
#include "baracuda_host/matrix.h"
#include "baracuda_host/sm90.h"
#include "baracuda_host/copies.h"
#include "baracuda_host/export.h"
