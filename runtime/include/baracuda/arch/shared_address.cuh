// Loads and stores of shared memory at 32-bit addresses, which take one register.
#pragma once

namespace baracuda {

// As ldmatrix_x4 of tensor_core.cuh, and its inverse: lane i gives the address of row i % 8 of matrix i / 8, with
// `trans` of the transposed matrix.
#ifdef BARACUDA_HOST
inline void ldmatrix_x4(unsigned* fragment, unsigned row, BARACUDA_SITE) {
    baracuda_host::ldmatrix<4>(fragment, __cvta_shared_to_generic(row, BARACUDA_SITE_ARGS), BARACUDA_SITE_ARGS);
}
inline void stmatrix_x4(unsigned row, const unsigned* fragment, BARACUDA_SITE) {
    baracuda_host::stmatrix<4>(__cvta_shared_to_generic(row, BARACUDA_SITE_ARGS), fragment, BARACUDA_SITE_ARGS);
}
inline void stmatrix_x4_trans(unsigned row, const unsigned* fragment, BARACUDA_SITE) {
    baracuda_host::stmatrix<4, true>(__cvta_shared_to_generic(row, BARACUDA_SITE_ARGS), fragment, BARACUDA_SITE_ARGS);
}
inline void load_shared(float (&two)[2], unsigned at, BARACUDA_SITE) {
    const float2 value = *static_cast<const float2*>(__cvta_shared_to_generic(at, BARACUDA_SITE_ARGS));
    two[0] = value.x, two[1] = value.y;
}
inline void load_shared_4(float* four, unsigned at, BARACUDA_SITE) {
    const float4 value = *static_cast<const float4*>(__cvta_shared_to_generic(at, BARACUDA_SITE_ARGS));
    four[0] = value.x, four[1] = value.y, four[2] = value.z, four[3] = value.w;
}
inline void store_shared_4(unsigned at, const float* four, BARACUDA_SITE) {
    *static_cast<float4*>(__cvta_shared_to_generic(at, BARACUDA_SITE_ARGS)) =
        make_float4(four[0], four[1], four[2], four[3]);
}
#else
__device__ __forceinline__ void ldmatrix_x4(unsigned* fragment, unsigned row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(fragment[0]), "=r"(fragment[1]), "=r"(fragment[2]), "=r"(fragment[3])
                 : "r"(row)
                 : "memory");
}
__device__ __forceinline__ void stmatrix_x4(unsigned row, const unsigned* fragment) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row), "r"(fragment[0]),
                 "r"(fragment[1]), "r"(fragment[2]), "r"(fragment[3])
                 : "memory");
}
__device__ __forceinline__ void stmatrix_x4_trans(unsigned row, const unsigned* fragment) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row), "r"(fragment[0]),
                 "r"(fragment[1]), "r"(fragment[2]), "r"(fragment[3])
                 : "memory");
}
// Neighbouring floats. A load may move across other accesses, as it has no memory clobber: its waits say when.
__device__ __forceinline__ void load_shared(float (&two)[2], unsigned at) {
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(two[0]), "=f"(two[1]) : "r"(at));
}
__device__ __forceinline__ void load_shared_4(float* four, unsigned at) {
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(four[0]), "=f"(four[1]), "=f"(four[2]), "=f"(four[3])
                 : "r"(at));
}
__device__ __forceinline__ void store_shared_4(unsigned at, const float* four) {
    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(at), "f"(four[0]), "f"(four[1]), "f"(four[2]),
                 "f"(four[3])
                 : "memory");
}
#endif

}  // namespace baracuda
