package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"sigs.k8s.io/karpenter/pkg/cloudprovider"
)

// fault refuses launches of the offerings whose labels match. The first Allow launches pass; Hidden offerings are unavailable before
// any launch is tried. Writing the file anew starts the counts anew.
type fault struct {
	Match  map[string]string `json:"match"`
	Allow  int               `json:"allow"`
	Hidden bool              `json:"hidden"`
	passed int
}

// faults is the list in a file, and which offerings were refused lately.
type faults struct {
	path    string
	refusal time.Duration

	mu      sync.Mutex
	content []byte
	list    []*fault
	until   map[string]time.Time
}

// read loads the file if it has changed. The caller holds mu.
func (f *faults) read() error {
	content, err := os.ReadFile(f.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) && f.path != "" {
		return err
	}
	if f.until != nil && bytes.Equal(content, f.content) {
		return nil
	}
	list := []*fault{}
	if len(content) > 0 {
		if err := json.Unmarshal(content, &list); err != nil {
			return err
		}
	}
	f.content, f.list, f.until = content, list, map[string]time.Time{}
	return nil
}

// available says whether an offering may be considered at all.
func (f *faults) available(t *cloudprovider.InstanceType, o *cloudprovider.Offering) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.read(); err != nil {
		return false, err
	}
	if time.Now().Before(f.until[offeringKey(t, o)]) {
		return false, nil
	}
	for _, one := range f.list {
		if one.Hidden && one.matches(t, o) {
			return false, nil
		}
	}
	return true, nil
}

// launch says whether a launch passes, and counts it.
func (f *faults) launch(t *cloudprovider.InstanceType, o *cloudprovider.Offering) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.read(); err != nil {
		return false, err
	}
	for _, one := range f.list {
		if !one.Hidden && one.matches(t, o) {
			if one.passed >= one.Allow {
				f.until[offeringKey(t, o)] = time.Now().Add(f.refusal)
				return false, nil
			}
			one.passed++
		}
	}
	return true, nil
}

func (f *fault) matches(t *cloudprovider.InstanceType, o *cloudprovider.Offering) bool {
	for key, value := range f.Match {
		if key == corev1.LabelInstanceTypeStable {
			if t.Name != value {
				return false
			}
		} else if !o.Requirements.Get(key).Has(value) {
			return false
		}
	}
	return true
}
