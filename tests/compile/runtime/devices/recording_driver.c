// A CUDA driver that launches nothing and records what it is asked for. Two devices of compute capability 9.0 with 132
// multiprocessors; the primary context of device d is 0x1000 + d, a function's handle its context + 0x5000, and a stream
// 0xde00 + d is of device d, others of any.
#include <string.h>

typedef struct {  // CUlaunchConfig
    unsigned grid[3], block[3], shared;
    void *stream, *attributes;
    unsigned attribute_count;
} Config;

int devices = 2, refusal, launches, loads, retained;
int reserved, reservations;  // dynamic shared memory that a function was last given, and how many times
long seen[16];  // grid, block, shared, stream, attribute and its value, context, function, first two words of the struct

static __thread long stack[8];
static __thread int depth;

int cuInit(unsigned flags) { return devices ? 0 : 100; }

int cuGetErrorName(int code, const char **out) {
    *out = code == 1 ? "CUDA_ERROR_INVALID_VALUE" : 0;
    return code != 1;
}

int cuGetErrorString(int code, const char **out) {
    *out = code == 1 ? "invalid argument" : 0;
    return code != 1;
}

int cuDriverGetVersion(int *out) { return *out = 12080, 0; }
int cuDeviceGetCount(int *out) { return *out = devices, 0; }
int cuDeviceGet(int *out, int ordinal) { return *out = ordinal, 0; }
int cuDeviceGetAttribute(int *out, int which, int device) {
    *out = which == 75 ? 9 : which == 16 ? 132 : 0;
    return which != 75 && which != 76 && which != 16;
}

int cuDevicePrimaryCtxRetain(long *out, int device) { return ++retained, *out = 0x1000 + device, 0; }
int cuCtxGetCurrent(long *out) { return *out = depth ? stack[depth - 1] : 0, 0; }
int cuCtxGetDevice(int *out) { return *out = depth ? stack[depth - 1] - 0x1000 : 0, depth ? 0 : 201; }
int cuCtxPushCurrent_v2(long context) { return stack[depth++] = context, 0; }
int cuCtxPopCurrent_v2(long *out) { return *out = stack[--depth], 0; }

int cuLibraryLoadData(long *out, const char *image, void *options, void *values, unsigned n, void *library_options,
                      void *library_values, unsigned m) {
    ++loads;
    *out = 0x7000;
    return memcmp(image, "\x7f" "ELF\0cubin", 10) ? 200 : 0;
}

int cuLibraryGetKernel(long *out, long library, const char *name) {
    *out = 0x6000;
    return strcmp(name, "absent") ? 0 : 500;
}

int cuKernelGetFunction(long *out, long kernel) { return *out = 0x5000 + stack[depth - 1], 0; }
int cuFuncGetAttribute(int *out, int which, long function) { return *out = 32, 0; }

int cuFuncSetAttribute(long function, int which, int value) {
    if (which != 8 || function != 0x5000 + stack[depth - 1]) return 1;
    ++reservations;
    reserved = value;
    return refusal;
}

int cuKernelGetParamInfo(long kernel, size_t index, size_t *offset, size_t *size) { return *size = 16, 0; }

int cuStreamGetCtx(long stream, long *out) {
    if (stream >> 8 != 0xde) return cuCtxGetCurrent(out), *out ? 0 : 201;
    return *out = 0x1000 + (stream & 0xff), 0;
}

int cuStreamIsCapturing(long stream, int *out) {
    if (!depth) return 201;
    *out = stream == 5 ? 1 : stream == 6 ? 2 : 0;
    return stream ? 0 : 906;
}

// Starts nothing where no context is current, or another than the function's, or the stream is of another.
int cuLaunchKernelEx(const Config *config, long function, void **parameters, void **extra) {
    long context, owner;
    cuCtxGetCurrent(&context);
    if (!context) return 201;
    cuStreamGetCtx((long)config->stream, &owner);
    if (context != function - 0x5000 || owner != context) return 400;
    ++launches;
    for (int i = 0; i < 3; ++i) seen[i] = config->grid[i], seen[3 + i] = config->block[i];
    seen[6] = config->shared;
    seen[7] = (long)config->stream;
    seen[8] = config->attribute_count ? 10 * *(int *)config->attributes + ((int *)config->attributes)[2] : extra != 0;
    seen[9] = context;
    seen[10] = function;
    memcpy(&seen[11], parameters[0], 16);
    return refusal;
}
