package main

import (
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

type term []byte

func (t term) number(offset int) uint64 { return atomic.LoadUint64((*uint64)(unsafe.Pointer(&t[offset]))) }

func now() uint64 {
	const bootTime = 7
	var time syscall.Timespec
	syscall.Syscall(syscall.SYS_CLOCK_GETTIME, bootTime, uintptr(unsafe.Pointer(&time)), 0)
	return uint64(time.Nano())
}

func (t term) held() bool {
	hard := t.number(32)
	return now() < hard
}

// heldToken is the token of the term that is held; 0 if there is none.
func (t term) heldToken() uint64 {
	for range 1000 {
		before := t.number(8)
		token, hard := t.number(40), t.number(32)
		if before%2 == 0 && t.number(8) == before {
			if now() < hard {
				return token
			}
			return 0
		}
	}
	return 0
}

func main() {
	number, err := strconv.Atoi(os.Getenv("TENURE_TERM_FD"))
	if err != nil {
		os.Exit(78)
	}
	page, err := syscall.Mmap(number, 0, 4096, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil || string(page[:8]) != "TENU\x01\x00\x00\x00" {
		os.Exit(78)
	}
	for t := term(page); ; time.Sleep(100 * time.Millisecond) {
		if token := t.heldToken(); token != 0 && t.held() {
			fmt.Println("writes with token", token)
		} else {
			fmt.Println("waits")
		}
	}
}
