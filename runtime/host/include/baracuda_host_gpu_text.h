// After the vocabulary: device headers take the text that they have for GPUs, of architecture BARACUDA_GPU_TEXT, whose
// inline PTX calls the functions of ptx.h.
#pragma once
#undef BARACUDA_HOST
#define __CUDA_ARCH__ BARACUDA_GPU_TEXT
#include "baracuda_host/ptx.h"
