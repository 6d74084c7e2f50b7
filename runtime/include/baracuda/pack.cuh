// N neighbours in memory, moved 16 bytes at a time.
#pragma once

#include <baracuda/element.cuh>

namespace baracuda {

// A type without const, and the type of what a pointer to a member points to.
template <typename T> struct Mutable {
    using type = T;
};
template <typename T> struct Mutable<const T> {
    using type = T;
};
template <class M> struct MemberType;
template <class Args, class M> struct MemberType<M Args::*> {
    using type = M;
};

template <int BYTES> struct Word;
template <> struct Word<16> {
    using type = uint4;
};
template <> struct Word<8> {
    using type = uint2;
};
template <> struct Word<4> {
    using type = unsigned;
};
template <> struct Word<2> {
    using type = unsigned short;
};
template <> struct Word<1> {
    using type = unsigned char;
};

// The host device refuses an address that is not a multiple of the alignment of what lies there.
template <class V, typename T> __device__ __forceinline__ V* aligned(T* address) {
#ifdef BARACUDA_HOST
    baracuda_host::require_aligned(address, alignof(V));
#endif
    return reinterpret_cast<V*>(address);
}

template <typename T, int N> struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) Pack {
    T lane[N];

    // The address must be a multiple of the pack's alignment, in global memory to store to.
    __device__ void load(const T* address) { *this = *aligned<const Pack>(address); }
    __device__ void store(T* address) const {
#ifdef BARACUDA_HOST
        __stwb(aligned<Pack>(address), *this);
#else  // in words, because NVRTC takes the copy of a struct apart and stores its members
        using W = typename Word<alignof(Pack)>::type;
        struct Words {
            W word[sizeof(Pack) / sizeof(W)];
        };
        const Words words = __builtin_bit_cast(Words, *this);
#pragma unroll
        for (int i = 0; i < int(sizeof(Pack) / sizeof(W)); ++i)
            __stwb(reinterpret_cast<W*>(address) + i, words.word[i]);
#endif
    }
};

// A pack as registers hold it. What may have been read in several ways is a choice between words: of lanes, each
// would take a register, and each load would be waited for where it is unpacked.
template <typename T, int N> struct alignas(alignof(Pack<T, N>)) PackWords {
    using W = typename Word<(sizeof(Pack<T, N>) < 4 ? sizeof(Pack<T, N>) : 4)>::type;
    W word[sizeof(Pack<T, N>) / sizeof(W)];

    __device__ void load(const T* address) { *this = *aligned<const PackWords>(address); }
    // Loads if it should, without a branch, behind which loads would wait for each other.
    __device__ void load_if(const T* address, bool should) {
#ifndef BARACUDA_HOST
        if constexpr (sizeof(PackWords) % 16 == 0) {
            const auto from = __cvta_generic_to_global(address);
#pragma unroll
            for (int i = 0; i < int(sizeof(PackWords) / 16); ++i)
                asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %5, 0;\n@p ld.global.v4.b32 {%0, %1, %2, %3}, [%4];\n}"
                             : "+r"(word[4 * i]), "+r"(word[4 * i + 1]), "+r"(word[4 * i + 2]), "+r"(word[4 * i + 3])
                             : "l"(from + 16 * i), "r"(unsigned(should)));
            return;
        }
#endif
        if (should) load(address);
    }
    // N elements from any address on: of two bytes, in words of which a half is loaded alone where it begins and ends.
    __device__ void load_unaligned(const T* address) {
        if constexpr (sizeof(T) == 2 && N > 2) {
            constexpr int WORDS = N / 2;
            if (reinterpret_cast<u64>(address) % 4 == 0) {
#pragma unroll
                for (int i = 0; i < WORDS; ++i) word[i] = *aligned<const unsigned>(address + 2 * i);
                return;
            }
            unsigned next[WORDS + 1];
            next[0] = unsigned(*aligned<const unsigned short>(address)) << 16;
            next[WORDS] = *aligned<const unsigned short>(address + N - 1);
#pragma unroll
            for (int i = 1; i < WORDS; ++i) next[i] = *aligned<const unsigned>(address + 2 * i - 1);
#pragma unroll
            for (int i = 0; i < WORDS; ++i) word[i] = next[i] >> 16 | next[i + 1] << 16;
        } else {
            Pack<T, N> pack;
#pragma unroll
            for (int i = 0; i < N; ++i) pack.lane[i] = address[i];
            set(pack);
        }
    }
    // Every second element of two packs, from the first one on, or from the second.
    __device__ void pick(const PackWords& low, const PackWords& high, bool from_second) {
        constexpr int WORDS = sizeof(PackWords) / sizeof(W);
        const auto of = [&](int w) { return w < WORDS ? low.word[w] : high.word[w - WORDS]; };
        if constexpr (sizeof(W) < 4) {
            Pack<T, N> pack;
#pragma unroll
            for (int i = 0; i < N; ++i) {
                const Pack<T, N> from = __builtin_bit_cast(Pack<T, N>, 2 * i < N ? low : high);
                pack.lane[i] = from_second ? from.lane[(2 * i + 1) % N] : from.lane[2 * i % N];
            }
            set(pack);
        } else if constexpr (sizeof(T) < 4) {
            const unsigned bytes = sizeof(T) == 2 ? (from_second ? 0x7632 : 0x5410) : from_second ? 0x7531 : 0x6420;
#pragma unroll
            for (int w = 0; w < WORDS; ++w) word[w] = __byte_perm(of(2 * w), of(2 * w + 1), bytes);
        } else {
            constexpr int EACH = sizeof(T) / 4;
#pragma unroll
            for (int w = 0; w < WORDS; ++w) {
                const int first = 2 * (w - w % EACH) + w % EACH;
                word[w] = from_second ? of(first + EACH) : of(first);
            }
        }
    }
    // The caller discards elements outside of [first, end): other threads may be storing them.
    __device__ void load_part(const T* address, [[maybe_unused]] const T* first, [[maybe_unused]] const T* end) {
#ifdef BARACUDA_HOST_CHECK
        baracuda_host::load_part(this, aligned<const PackWords>(address), first, end);
#else
        load(address);
#endif
    }
    __device__ void set(const Pack<T, N>& pack) { *this = __builtin_bit_cast(PackWords, pack); }
    __device__ Pack<T, N> pack() {
        settle();
        return __builtin_bit_cast(Pack<T, N>, *this);
    }
    // Words from here on, whatever they were made of.
    __device__ void settle() {
#ifndef BARACUDA_HOST
        if constexpr (sizeof(W) == 4) {
#pragma unroll
            for (W& w : word) asm("" : "+r"(w));
        }
#endif
    }
};

// Loads an element, which the caller may discard.
template <typename T>
__device__ __forceinline__ void load_element(T& element, const T* address, [[maybe_unused]] bool used) {
#ifdef BARACUDA_HOST_CHECK
    baracuda_host::load_part(&element, address, used ? address : address + 1, address + 1);
#else
    element = *address;
#endif
}

// What a lane converts from: of bf16, its float, which is half of a word as it is.
template <typename T, int N> __device__ T value_of(const Pack<T, N>& pack, int i) { return pack.lane[i]; }
template <int N> __device__ float value_of(const Pack<bf16, N>& pack, int i) {
    if constexpr (N == 1) {
        return float(pack.lane[0]);
    } else {
        using Words = PackWords<bf16, N>;
        const unsigned word = __builtin_bit_cast(Words, pack).word[i / 2];
        return __uint_as_float(i % 2 ? word & 0xffff0000u : word << 16);
    }
}

}  // namespace baracuda
